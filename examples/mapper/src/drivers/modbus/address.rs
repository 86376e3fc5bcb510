//! Which bus a device is on: a connection over TCP, or a serial line with its settings. Pure.

use crate::config_data::Config;

/// A bus: one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// `HOST:PORT`.
    Tcp(String),
    Serial(Line),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) path: String,
    pub(super) baud: u32,
    pub(super) data_bits: u32,
    pub(super) parity: Parity,
    pub(super) stop_bits: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parity {
    None,
    Even,
    Odd,
}

impl Address {
    pub(super) fn parse(config: &Config) -> Result<Self, String> {
        match (config.text("address"), config.text("serialPort")) {
            (Some(address), None) => {
                let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
                match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
                    Some(_) if address.len() < 300 => Ok(Self::Tcp(address)),
                    _ => Err(format!("configData address {address:?} is not HOST:PORT")),
                }
            }
            (None, Some(path)) => Line::parse(path, config).map(Self::Serial),
            (Some(_), Some(_)) => Err("configData has address and serialPort: it is one of them".to_owned()),
            (None, None) => Err("configData has neither address nor serialPort".to_owned()),
        }
    }
}

impl Line {
    fn parse(path: String, config: &Config) -> Result<Self, String> {
        let is_line = path.starts_with("/dev/") && path.len() < 300 && !path.split('/').any(|part| part == "..");
        if !is_line {
            return Err(format!("configData serialPort {path:?} is not below /dev"));
        }
        let parity = match config.text("parity").map(|parity| parity.to_ascii_lowercase()).as_deref() {
            None | Some("none" | "n") => Parity::None,
            Some("even" | "e") => Parity::Even,
            Some("odd" | "o") => Parity::Odd,
            Some(other) => return Err(format!("configData parity {other:?} is not none, even or odd")),
        };
        Ok(Self {
            path,
            baud: config.whole("baudRate", 1_200..=921_600)?.unwrap_or(9_600),
            data_bits: config.whole("dataBits", 7..=8)?.unwrap_or(8),
            parity,
            stop_bits: config.whole("stopBits", 1..=2)?.unwrap_or(1),
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => out.write_str(address),
            Self::Serial(line) => out.write_str(&line.path),
        }
    }
}
