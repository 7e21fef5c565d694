"""What is alike for every route and model: errors, bodies, browsers, ids of requests."""
