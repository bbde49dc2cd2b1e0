//! The served directory, and how its content is opened.
//!
//! The root is opened once. Everything read later is opened below a descriptor by cap-std. It lets neither `..` nor a
//! link, anywhere in the path and at any time, lead above that descriptor: the kernel checks while it opens, so there
//! is no gap between check and use.

use std::io;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions, OpenOptionsExt};
use gavel_mcp_base::ToolError;
use rustix::fs::OFlags;

use crate::error::{self, Code};
use crate::path::InnerPath;

/// The served directory.
#[derive(Debug, Clone)]
pub(crate) struct Root(Arc<Dir>);

/// What a path names.
#[derive(Debug)]
pub(crate) enum Node {
    Directory(Dir),
    File(File, Metadata),
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let root = Dir::open_ambient_dir(path, ambient_authority())?;
        // A directory that cannot be listed must fail at the start rather than at the first call.
        root.entries()?;
        Ok(Self(Arc::new(root)))
    }

    pub(crate) fn node(&self, path: &InnerPath) -> Result<Node, ToolError> {
        let refuse = |error: io::Error| error::of(&error, &path.to_string());
        if self.0.metadata(path.to_open()).map_err(refuse)?.is_dir() {
            return self.0.open_dir(path.to_open()).map(Node::Directory).map_err(refuse);
        }
        match open_file(&self.0, path.to_open()).map_err(refuse)? {
            Some((file, metadata)) => Ok(Node::File(file, metadata)),
            None => Err(ToolError::new(
                Code::NotAFile,
                format!("`{path}` is a device, a pipe or a socket. Only files and folders can be read."),
            )),
        }
    }

    pub(crate) fn directory(&self, path: &InnerPath) -> Result<Dir, ToolError> {
        match self.node(path)? {
            Node::Directory(directory) => Ok(directory),
            Node::File(..) => Err(ToolError::new(
                Code::NotAFolder,
                format!("`{path}` is a file, not a folder. read_file reads it."),
            )),
        }
    }
}

/// Opens a file below `directory`; `None` if it is not a regular file. Devices, pipes and sockets are not opened, since
/// opening can have effects. If one replaces the file in between, it is opened without blocking and closed unread.
pub(crate) fn open_file(directory: &Dir, path: &Path) -> io::Result<Option<(File, Metadata)>> {
    if !directory.metadata(path)?.is_file() {
        return Ok(None);
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = directory.open_with(path, &options)?;
    let metadata = file.metadata()?;
    Ok(metadata.is_file().then_some((file, metadata)))
}
