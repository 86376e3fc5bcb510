//! How one object is merged into another: JSON patch, strategic merge, server-side apply. Pure; knows no resource.

pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod merge_keys;
pub(crate) mod places;
pub(crate) mod strategic;
