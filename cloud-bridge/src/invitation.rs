//! How a token reaches a device: as a command, as a code for a camera, as a file for its first boot. Pure but for the file;
//! makes no tokens.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use edge_protocol::join_token::{self, Place};
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// What a device is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Invitation<'a> {
    /// `https://HOST:PORT` of each.
    pub(crate) bridges: &'a [String],
    /// `None` with a claim token, whose boards the bridge names.
    pub(crate) node: Option<&'a str>,
    pub(crate) token: &'a str,
}

impl Invitation<'_> {
    /// The token with its node and bridges: all that `edge-runtime join` needs.
    pub(crate) fn text(&self) -> String {
        let node = self.node.unwrap_or(join_token::NO_NODE).to_owned();
        let place = Place { node, bridges: self.bridges.to_vec() };
        join_token::with_place(self.token, &place)
    }

    /// The command to paste on the device, for a user who is not root there. `echo` is part of the shell: the token is kept out of
    /// the list of processes and of the log of sudo.
    pub(crate) fn command(&self) -> String {
        format!("echo {} | sudo edge-runtime join -", self.text())
    }

    /// The command as a QR code, for a terminal of light text on dark.
    ///
    /// # Errors
    /// It is longer than a code can be (2.9 KB).
    pub(crate) fn code(&self) -> anyhow::Result<String> {
        // Read from a screen, nothing of it is torn or dirty.
        let code = QrCode::with_error_correction_level(self.command(), EcLevel::L)?;
        Ok(code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build())
    }

    /// What `edge-runtime first-boot` reads.
    pub(crate) fn file(&self) -> String {
        let bridges: String = self.bridges.iter().map(|bridge| format!("bridge: {bridge}\n")).collect();
        let node = self.node.map(|node| format!("node: {node}\n")).unwrap_or_default();
        format!(
            "# Put this on the boot partition of the card, as edge-runtime.join: the board joins when it boots, and removes it.\n\
             # More lines may be `label: KEY=VALUE` and `proxy: http://HOST:PORT`.\n{bridges}{node}token: {}\n",
            self.token
        )
    }

    /// Writes that file, readable by its owner only. One that is there is replaced.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        // A file that others may read keeps its mode when it is opened.
        if let Err(error) = fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.file().as_bytes())?;
        // It is on its way to a card that is pulled out next.
        file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TOKEN: &str = "sampan1.0a0a.secret";

    fn bridges() -> Vec<String> {
        ["https://bridge.example.com:7443", "https://10.0.0.2:7443"].map(str::to_owned).to_vec()
    }

    #[test]
    fn command_and_file_name_token_node_and_bridges() {
        let bridges = bridges();
        let invitation = Invitation { bridges: &bridges, node: Some("edge-1"), token: TOKEN };
        let command = invitation.command();
        let text = command.strip_prefix("echo ").and_then(|rest| rest.strip_suffix(" | sudo edge-runtime join -"));
        let place = Place { node: "edge-1".into(), bridges: bridges.clone() };
        assert_eq!(text.map(join_token::split), Some(Ok((TOKEN, Some(place)))), "{command}");
        let file = invitation.file();
        let lines: Vec<&str> = file.lines().filter(|line| !line.starts_with('#')).collect();
        let wanted = [
            "bridge: https://bridge.example.com:7443",
            "bridge: https://10.0.0.2:7443",
            "node: edge-1",
            "token: sampan1.0a0a.secret",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn claim_token_has_no_line_with_a_node() {
        let bridges = bridges();
        let invitation = Invitation { bridges: &bridges, node: None, token: "sampan2.0a0a.secret" };
        assert!(!invitation.file().contains("node:"), "{}", invitation.file());
        let place = Place { node: join_token::NO_NODE.into(), bridges: bridges.clone() };
        assert_eq!(join_token::split(&invitation.text()), Ok(("sampan2.0a0a.secret", Some(place))));
    }

    #[test]
    fn a_code_is_a_square_with_a_quiet_zone() {
        let long = "n".repeat(63);
        let token = format!("sampan1.{}.{}", "0a".repeat(32), "s".repeat(43));
        let code = Invitation { bridges: &bridges(), node: Some(&long), token: &token }.code().unwrap();
        let lines: Vec<&str> = code.lines().collect();
        let width = lines[0].chars().count();
        assert!(lines.iter().all(|line| line.chars().count() == width), "{code}");
        assert!(width <= 80 && lines.len() == width.div_ceil(2), "{width}x{}", lines.len());
        // The border of a reader's first look is light, which on a dark terminal is what is printed.
        assert!(lines[0].chars().all(|c| c == '█'), "{code}");
    }

    #[test]
    fn the_file_is_its_owners_alone_whatever_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge-runtime.join");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let invitation = Invitation { bridges: &[], node: Some("edge-1"), token: TOKEN };
        invitation.write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), invitation.file());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
