//! A call of the controller of a CSI driver: bytes between the bridge and `edge-plugins`, which reads them, decides what
//! may be called, and calls the driver.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::Path;

use edge_protocol::message::StreamRequest;
use smol::Async;
use smol::io::AsyncWriteExt;

use super::channels::Channels;
use super::{Asked, Streams, port_forward};
use crate::sys::socket::connect_beside;

impl Streams {
    pub(super) fn open_csi(&mut self, asked: &Asked<'_>) -> Result<(), String> {
        let StreamRequest::Csi { driver, path } = asked.request else { return Err("no call of a CSI driver".into()) };
        let cx = asked.of.cx;
        if !cx.config.plugins.csi_controllers.contains_key(driver) {
            return Err(["no controller of the CSI driver ", driver.as_str(), " in plugins.csi-controllers"].concat());
        }
        let (socket, head) = (cx.paths.csi_socket(), [driver.as_str(), " ", path.as_str(), "\n"].concat());
        self.serve(asked, "", |wires| async move {
            let channels = Channels::new(wires);
            match connect(&socket, head.as_bytes()).await {
                Ok(connection) => port_forward::pass(channels, connection).await,
                Err(error) => {
                    channels.to.end(Some(["edge-plugins does not answer: ", error.to_string().as_str()].concat()))
                }
            }
        });
        Ok(())
    }
}

/// A connection to the helper, which has been told what is called. What is done with it is the same for sockets of any
/// family, so it is passed on by the code of a port-forward.
async fn connect(socket: &Path, head: &[u8]) -> io::Result<Async<TcpStream>> {
    let stream = OwnedFd::from(connect_beside(socket).await?.into_inner()?);
    let connection = Async::new(TcpStream::from(stream))?;
    let mut writer = &connection;
    writer.write_all(head).await?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixListener;

    use smol::block_on;
    use smol::io::AsyncReadExt;

    use super::*;

    #[test]
    fn helper_gets_what_is_called_and_both_ends_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plugins.csi");
        assert!(block_on(connect(&path, b"x")).is_err(), "there is no helper");
        let listener = UnixListener::bind(&path).unwrap();
        let connection = block_on(connect(&path, b"d.x /csi.v1.Identity/Probe\n")).unwrap();
        let (mut helper, _) = listener.accept().unwrap();
        block_on((&connection).write_all(b"message")).unwrap();
        connection.get_ref().shutdown(Shutdown::Write).unwrap();
        let mut told = String::new();
        helper.read_to_string(&mut told).unwrap();
        assert_eq!(told, "d.x /csi.v1.Identity/Probe\nmessage");
        helper.write_all(b"answer").unwrap();
        drop(helper);
        let mut answer = Vec::new();
        block_on((&connection).read_to_end(&mut answer)).unwrap();
        assert_eq!(answer, b"answer");
    }
}
