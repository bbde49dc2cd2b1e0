//! The parts of the system that every command can read.

use std::path::Path;

/// Directories with programs. On most systems all but the first are links into it.
pub(super) const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What the programs of `/usr` need beyond it: links of Debian's `/usr/bin`, and where libraries are.
const FILES: [&str; 4] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
];

/// What they need to find hosts and to check their certificates.
const NETWORK: [&str; 8] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
];

/// The files and directories of `/etc` that can be read, as far as they exist.
pub(super) fn files(network: bool) -> impl Iterator<Item = &'static Path> {
    let network = network.then_some(NETWORK).into_iter().flatten();
    FILES
        .into_iter()
        .chain(network)
        .map(Path::new)
        .filter(|path| path.exists())
}
