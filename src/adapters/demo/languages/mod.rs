//! The languages, one file each.

use super::language::Language;

mod de;
mod en;
mod es;
mod fr;

pub(super) const ALL: [&Language; 4] = [&en::ENGLISH, &de::GERMAN, &es::SPANISH, &fr::FRENCH];
