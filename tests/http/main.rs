//! The edge on a real port, in front of scripted ports: what clients see of every route.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, unreachable_pub)]

mod auth;
mod chat;
mod connection;
mod fakes;
mod foreign;
mod harness;
mod misuse;
mod pages;
mod records;
mod stream;
