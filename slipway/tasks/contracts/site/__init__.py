"""The site file and its sections: what differs between places. Nothing here knows a spec."""
