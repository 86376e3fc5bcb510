//! Label and field selectors: parsing and matching. Pure.

/// The most requirements of a selector and values in them, together. Each object that is looked at is held against all of
/// them, and a change against those of each watch.
pub const SIZE_MAX: usize = 4096;

mod fields;
mod labels;
#[cfg(test)]
mod tests;

pub use fields::FieldSelector;
pub use labels::{LabelSelector, format_label_selector, meets, selects, selects_by, size};
