//! Label and field selectors: parsing and matching. Pure.

mod fields;
mod labels;
#[cfg(test)]
mod tests;

pub use fields::FieldSelector;
pub use labels::{LabelSelector, format_label_selector, meets, selects};
