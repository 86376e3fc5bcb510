//! A wall clock for one program, wrong by as much as a test needs: a preloaded library changes what the program reads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Adds the seconds in the file named by FAKE_CLOCK to CLOCK_REALTIME; other clocks are unchanged. FAKE_CLOCK_STATE is
/// the return value of adjtimex(2).
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    if (syscall(SYS_clock_gettime, id, now) != 0) return -1;
    const char *name = getenv("FAKE_CLOCK");
    if (name == NULL || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return 0;
    char text[32] = {0};
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) > 0) now->tv_sec += atoll(text);
    close(file);
    return 0;
}
int adjtimex(struct timex *asked) {
    const char *state = getenv("FAKE_CLOCK_STATE");
    return state == NULL ? (int)syscall(SYS_adjtimex, asked) : atoi(state);
}
"#;

/// A clock for a program, which is started with [`FakeClock::env`].
pub struct FakeClock {
    library: PathBuf,
    offset: PathBuf,
}

impl FakeClock {
    /// Builds its library in `folder`.
    ///
    /// # Panics
    /// The C compiler is missing.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        std::fs::write(&source, LIBRARY).expect("written");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status();
        assert!(built.expect("a C compiler, as SQLite needs").success());
        Self { library, offset: folder.join("clock.offset") }
    }

    /// Sets the clock this many seconds ahead. The write is atomic, because programs read the file at any time.
    ///
    /// # Panics
    /// The folder is gone.
    pub fn set(&self, offset: i64) {
        let partial = self.offset.with_extension("partial");
        std::fs::write(&partial, offset.to_string()).expect("written");
        std::fs::rename(&partial, &self.offset).expect("renamed");
    }

    /// One minute past midnight, January the first.
    ///
    /// # Panics
    /// The folder is gone.
    pub fn set_1970(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        self.set(60 - i64::try_from(now).expect("a time"));
    }

    /// Environment of a program that uses this clock.
    #[must_use]
    pub fn env(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![("LD_PRELOAD".into(), text(&self.library)), ("FAKE_CLOCK".into(), text(&self.offset))]
    }
}
