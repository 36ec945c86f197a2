//! Label and field selectors: parsing, printing, matching. Pure.

mod field;
mod label;

pub(crate) use field::FieldSelector;
pub(crate) use label::LabelSelector;
