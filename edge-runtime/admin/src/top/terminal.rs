//! A screen to draw on, and keys. The terminal is as it was afterwards, also when a signal ends it.

use std::io::{Stdin, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::time::Duration;

use edge_runtime::cli::CliError;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr};
use sampan_sys::terminal::{self, Size};

use super::view::Order;

/// Another screen, without a cursor; and back (ECMA-48 and xterm's control sequences).
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Moves to the first position. Drawing then erases the remainder of each line, and of the screen.
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST: &str = "\x1b[J";

pub(super) enum Key {
    None,
    Order(Order),
    End,
}

pub(super) struct Screen {
    input: Stdin,
    before: Termios,
    signals: SignalFd,
}

impl Screen {
    /// # Errors
    /// Standard input is not a terminal.
    pub(super) fn open() -> Result<Self, CliError> {
        let input = stdin();
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH] {
            set.add(signal);
        }
        // From here on they are read, not delivered.
        set.thread_block()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let before = tcgetattr(&input)?;
        let mut settings = before.clone();
        settings.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        settings.control_chars[SpecialCharacterIndices::VMIN as usize] = 0;
        settings.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        tcsetattr(&input, SetArg::TCSANOW, &settings)?;
        let screen = Self { input, before, signals };
        say(ENTER)?;
        Ok(screen)
    }

    pub(super) fn size(&self) -> Size {
        terminal::size(&stdout()).unwrap_or(Size { width: 80, height: 24 })
    }

    /// # Errors
    /// The terminal is closed.
    pub(super) fn draw(&self, text: &str) -> Result<(), CliError> {
        let lines = text.lines().map(|line| format!("{line}{REST_OF_LINE}")).collect::<Vec<_>>().join("\r\n");
        say(&format!("{HOME}{lines}{REST}"))
    }

    /// Returns the key pressed within `wait`. A change of the window's size returns at once, to redraw.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn key(&self, wait: Duration) -> Result<Key, CliError> {
        let mut both =
            [PollFd::new(self.input.as_fd(), PollFlags::POLLIN), PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        poll(&mut both, PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX))?;
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo != Signal::SIGWINCH as u32 {
                return Ok(Key::End);
            }
        }
        let ready = both[0].revents().unwrap_or(PollFlags::empty());
        if ready.is_empty() {
            return Ok(Key::None);
        }
        let mut byte = [0];
        // Not by `Stdin`, which would read ahead of poll.
        Ok(match nix::unistd::read(&self.input, &mut byte) {
            Ok(1) => match byte[0] {
                b'q' | b'Q' | 3 | 4 => Key::End,
                b'c' => Key::Order(Order::Cpu),
                b'm' => Key::Order(Order::Memory),
                b'n' => Key::Order(Order::Name),
                _ => Key::None,
            },
            // Hung up.
            _ => Key::End,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing is left to do for a terminal that is gone.
        let _ = tcsetattr(&self.input, SetArg::TCSANOW, &self.before);
        let _ = say(LEAVE);
    }
}

fn say(text: &str) -> Result<(), CliError> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
