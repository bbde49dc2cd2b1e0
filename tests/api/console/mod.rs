//! The console over plain HTTP, on both databases, and in a real browser.

mod analysis;
mod answers;
mod browser;
mod lists;
pub(crate) mod login;
mod news;
mod pictures;
mod planning;
pub(crate) mod rig;
