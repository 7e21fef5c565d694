"""Objects as data: the store, resources, selectors, patches, quantities, schemas."""
