//! Lets a node reach a server of the test: what arrives at an address on the node is passed on here.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::machine::Machine;
use crate::{Error, Result};

/// Ends when it is dropped, with all its connections.
#[derive(Debug)]
pub(super) struct Relay {
    task: JoinHandle<()>,
}

impl Relay {
    pub(super) fn start(machine: &Machine, on_the_node: SocketAddr, server: SocketAddr) -> Result<Self> {
        let listener = machine.listen(on_the_node)?;
        let doing = Error::io(format!("listening on {on_the_node} of a node"));
        let listener = TcpListener::from_std(listener).map_err(doing)?;
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut inside, _)) = listener.accept().await {
                connections.spawn(async move {
                    // Whatever goes wrong, the connection ends, and the node sees that.
                    if let Ok(mut outside) = TcpStream::connect(server).await {
                        copy_bidirectional(&mut inside, &mut outside).await.ok();
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { task })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}
