//! Label and field selectors: parsing and matching. Pure.

mod fields;
mod labels;
#[cfg(test)]
mod tests;

pub(crate) use fields::FieldSelector;
pub(crate) use labels::LabelSelector;
