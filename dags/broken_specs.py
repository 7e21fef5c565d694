"""Makes broken release specs visible: an import error of this file in Airflow's UI names each and what is wrong in it.

Airflow knows import errors of DAG files only, and loses every DAG of a file that has one; so the specs that are right
become DAGs in dags/release.py, and those that are not are reported here, where there is no DAG to lose.
"""

from plugins.slipway_airflow.site import specs_folder
from plugins.slipway_airflow.specs import read_specs
from tasks.contracts.errors import InputError

if broken := read_specs(specs_folder()).broken:
    raise InputError("\n".join(broken.values()))
