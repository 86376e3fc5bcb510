//! One board: its folder, its made-up hardware, and its asking.

use std::path::Path;
use std::time::{Duration, Instant};

use edge_runtime::link::address::BridgeAddress;
use edge_runtime::link::join::{Hardware, JoinError, Pauses, Token, enrol};
use edge_runtime::net::proxy::Proxy;
use edge_runtime::paths::Paths;
use sampan_sys::random::random;

use crate::outcome::Asked;

/// Status of the bridge's answer to too many new boards at once.
const TOO_MANY: u16 = 429;

/// A board that has just been switched on for the first time.
pub(crate) struct Board {
    paths: Paths,
    hardware: Hardware,
    token: Token,
    bridge: BridgeAddress,
}

impl Board {
    /// `run` and `number` make its serial number; `port` leads to the bridge.
    pub(crate) fn new(folder: &Path, run: u32, number: usize, token: Token, port: u16) -> Self {
        let [.., high, middle, low] = number.to_be_bytes();
        let hardware = Hardware {
            serial: format!("{run:08x}-{number:05}"),
            mac: vec![format!("02:00:5e:{high:02x}:{middle:02x}:{low:02x}")],
            model: "Raspberry Pi 4 Model B Rev 1.5".to_owned(),
            machine_id: format!("{run:08x}{number:024x}"),
        };
        let bridge = BridgeAddress { host: "127.0.0.1".to_owned(), port };
        Self { paths: Paths::new(&folder.join(number.to_string())), hardware, token, bridge }
    }

    /// Asks until it has its certificate, is refused permanently, or its time is over.
    pub(crate) async fn enrol(self, patience: Duration) -> Asked {
        let (started, mut asked) = (Instant::now(), Asked::default());
        let asking = self.ask(&mut asked, started);
        // Otherwise its last reason to wait stands.
        let _ = tokio::time::timeout(patience, asking).await;
        asked
    }

    async fn ask(&self, asked: &mut Asked, started: Instant) {
        let (bridges, proxy, mut pauses) = ([self.bridge.clone()], Proxy::default(), Pauses::default());
        loop {
            asked.asks += 1;
            let error = match enrol(&self.paths, &self.token, &bridges, &self.hardware, &proxy).await {
                Ok(_) => {
                    asked.took = Ok(started.elapsed());
                    return;
                }
                Err(error) => error,
            };
            asked.busy += u64::from(matches!(error, JoinError::Refused { status: TOO_MANY, .. }));
            asked.took = Err(reason(&error));
            if error.is_final() {
                return;
            }
            tokio::time::sleep(pauses.next(error.retry_seconds(), random())).await;
        }
    }
}

/// Why a board has no certificate yet. Boards with the same reason have the same text: no port and no name is in it.
fn reason(error: &JoinError) -> String {
    match error {
        JoinError::Refused { status, message, .. } => format!("{status}: {message}"),
        JoinError::Waiting { .. } => "waits for an approval".to_owned(),
        JoinError::Exchange { source, .. } => format!("no answer: {source}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token::parse(&format!("sampan2.{}.x", "0a".repeat(32))).unwrap()
    }

    #[test]
    fn boards_differ_in_folder_and_hardware() {
        let [one, other] = [1, 2].map(|number| Board::new(Path::new("/dev/shm/x"), 7, number, token(), 1));
        assert_eq!((one.hardware.serial.as_str(), one.hardware.machine_id.len()), ("00000007-00001", 32));
        assert_eq!(one.hardware.mac, ["02:00:5e:00:00:01"]);
        assert!(one.hardware.serial != other.hardware.serial && one.hardware.mac != other.hardware.mac);
        assert_ne!(one.paths.root(), other.paths.root());
    }

    #[test]
    fn reasons_name_no_port_and_no_board() {
        let of = |port, status| {
            let bridge = BridgeAddress { host: "127.0.0.1".to_owned(), port };
            reason(&JoinError::Refused { bridge, status, message: "too many".to_owned(), by_bridge: true })
        };
        assert_eq!(of(1, 429), of(2, 429));
        assert_eq!(of(1, 403), "403: too many");
        let waiting = JoinError::Waiting { node: "gw-1".to_owned(), request: "enrol-1".to_owned(), seconds: 30 };
        assert_eq!(reason(&waiting), "waits for an approval");
    }
}
