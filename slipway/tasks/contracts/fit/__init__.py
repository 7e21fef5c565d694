"""What follows from a spec at a site: placement, needs of steps, forecasts, objects that the site must have."""
