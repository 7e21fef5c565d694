"""What people see of models and releases, as HTML: views of stored documents, and their templates.

Pure: documents come from a reader. Airflow's API server renders these pages for its users, the command into one file.
"""
