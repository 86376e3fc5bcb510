//! How a token reaches a device: as a command, as a code for a camera, as a file for its first boot. Pure but for the file;
//! makes no tokens.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// What a device is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Invitation<'a> {
    /// `https://HOST:PORT`
    pub(crate) bridge: &'a str,
    pub(crate) node: &'a str,
    pub(crate) token: &'a str,
}

impl Invitation<'_> {
    /// The command to paste on the device, for a user who is not root there.
    pub(crate) fn command(&self) -> String {
        format!("sudo edge-runtime join --bridge {} --node {} --token {}", self.bridge, self.node, self.token)
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

    /// What `edge-runtime first-boot` reads: the words of the command, a line each.
    pub(crate) fn file(&self) -> String {
        format!(
            "# Put this on the boot partition of the card, as edge-runtime.join: the board joins when it boots, and removes it.\n\
             # More lines may be `label: KEY=VALUE`.\nbridge: {}\nnode: {}\ntoken: {}\n",
            self.bridge, self.node, self.token
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

    const INVITATION: Invitation<'_> =
        Invitation { bridge: "https://bridge.example.com:7443", node: "edge-1", token: "sampan1.0a0a.secret" };

    #[test]
    fn all_three_say_the_same() {
        let (command, file) = (INVITATION.command(), INVITATION.file());
        assert!(command.starts_with("sudo edge-runtime join --bridge "), "{command}");
        let words: Vec<&str> = command.split(" --").skip(1).collect();
        let lines: Vec<String> =
            file.lines().filter(|line| !line.starts_with('#')).map(|line| line.replace(": ", " ")).collect();
        assert_eq!(lines, words);
    }

    #[test]
    fn a_code_is_a_square_with_a_quiet_zone() {
        let long = "n".repeat(63);
        let token = format!("sampan1.{}.{}", "0a".repeat(32), "s".repeat(43));
        let code = Invitation { node: &long, token: &token, ..INVITATION }.code().unwrap();
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
        INVITATION.write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), INVITATION.file());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
