//! Black-box tests of the shell server: the real program over stdio, with real commands at each level.
//!
//! As root, or with CI set, a level that does not work here fails its tests. Otherwise they say what they did not
//! check.

#![allow(clippy::disallowed_methods, reason = "a test waits for what it spawns")]

mod harness;
mod observe;
#[path = "../../../base/tests/published/mod.rs"]
mod published;

mod attacks;
mod clients;
mod endings;
mod network;
mod repeats;
mod resources;
mod sessions;
mod startup;
mod unprivileged;
mod usage;

/// Each of these functions as a test at each level.
macro_rules! at_each_level {
    ($($name:ident),* $(,)?) => {
        crate::at_level!(bwrap: $($name),*);
        crate::at_level!(landlock: $($name),*);
        crate::at_level!(host: $($name),*);
    };
}
pub(crate) use at_each_level;

macro_rules! at_level {
    ($level:ident: $($name:ident),*) => {
        mod $level {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(stringify!($level)).await
                }
            )*
        }
    };
}
pub(crate) use at_level;
