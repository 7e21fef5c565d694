"""What a pod's status means, and where its containers write."""
