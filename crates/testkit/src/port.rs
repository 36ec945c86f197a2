//! Ports on loopback that no other test takes, also while the server behind one is stopped for a moment.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

use crate::{Error, Result};

/// Below the range from which the kernel takes ports of outgoing connections: such a connection could otherwise sit on
/// the port of a server that a test is just restarting.
const RANGE: std::ops::Range<u16> = 20_000..30_000;

/// A free TCP port on 127.0.0.1, reserved among all tests on this machine as long as the value lives.
///
/// The reservation is an abstract unix socket named after the port: it exists in the same network namespace as the
/// port, ends with the process however that ends, and leaves no file.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: UnixListener,
}

impl Port {
    /// Reserves a free port.
    pub fn reserve() -> Result<Self> {
        let mut last = None;
        for _ in 0..200 {
            match Self::try_reserve(rand::random_range(RANGE)) {
                Ok(port) => return Ok(port),
                Err(taken) => last = Some(taken),
            }
        }
        Err(Error::Io {
            doing: format!("looking for a free port between {} and {}", RANGE.start, RANGE.end),
            source: last.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into()),
        })
    }

    fn try_reserve(number: u16) -> std::io::Result<Self> {
        let name = UnixAddr::from_abstract_name(format!("larder-testkit-port-{number}"))?;
        let reservation = UnixListener::bind_addr(&name)?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number))?;
        Ok(Self {
            number,
            _reservation: reservation,
        })
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// 127.0.0.1 with this port.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_free_but_not_given_out_again() {
        let port = Port::reserve().unwrap();
        assert!(Port::try_reserve(port.number()).is_err());
        TcpListener::bind(port.address()).unwrap();
    }

    #[test]
    fn a_port_in_use_is_not_given_out() {
        let port = Port::reserve().unwrap();
        let number = port.number();
        drop(port);
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        assert!(Port::try_reserve(number).is_err());
    }
}
