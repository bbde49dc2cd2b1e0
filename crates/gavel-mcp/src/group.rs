//! Treats a child process and all its descendants as one unit.
//!
//! A command such as `npx` starts the server as a child process. When the command has ended, the rest of its process
//! group is killed, so that no server outlives its connection.

use std::future::Future;
use std::io::Result;
use std::pin::Pin;
use std::process::ExitStatus;

use process_wrap::tokio::{ChildWrapper, CommandWrap, CommandWrapper};

/// Ends the group with its leader. Wraps a process group, whose `kill` kills the group.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndsWithLeader;

impl CommandWrapper for EndsWithLeader {
    fn wrap_child(&mut self, inner: Box<dyn ChildWrapper>, _: &CommandWrap) -> Result<Box<dyn ChildWrapper>> {
        Ok(Box::new(Leader { inner }))
    }
}

#[derive(Debug)]
struct Leader {
    inner: Box<dyn ChildWrapper>,
}

impl ChildWrapper for Leader {
    fn inner(&self) -> &dyn ChildWrapper {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn ChildWrapper {
        &mut *self.inner
    }

    fn into_inner(self: Box<Self>) -> Box<dyn ChildWrapper> {
        self.inner
    }

    fn wait(&mut self) -> Pin<Box<dyn Future<Output = Result<ExitStatus>> + Send + '_>> {
        Box::pin(async {
            let status = self.inner.wait().await?;
            // This fails if the group is empty, which is fine.
            let _ = self.inner.start_kill();
            Ok(status)
        })
    }
}
