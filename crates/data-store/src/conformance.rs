//! Examination of stores.
