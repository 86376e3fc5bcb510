//! How one object is merged into another: JSON patch, strategic merge, server-side apply. Pure; knows no resource.

pub(crate) mod budget;
pub(crate) mod changes;
pub(crate) mod field_set;
pub(crate) mod json;
pub(crate) mod merge;
pub(crate) mod merge_keys;
pub(crate) mod shape;
pub(crate) mod strategic;
