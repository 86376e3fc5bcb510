//! Blobs over bad links: a download resumes where it ended, in this run or an earlier one, and counts only when its
//! digest is right. Owns the files `incoming/blob-<hex>`; does not know their content.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ureq::Body;
use ureq::http::{Response, StatusCode};

use crate::image::ImageError;
use crate::image::digest::{Hasher, HashingReader, hex};
use crate::image::incoming::{BLOB, Claim, Incoming};
use crate::image::limits::Limits;
use crate::image::manifest::Descriptor;
use crate::image::registry::Repository;
use crate::sys::writeback::Writeback;

/// Tries in a row that may bring nothing, with pauses of 1, 2, 4, 8 seconds between them.
const FRUITLESS: u32 = 5;
/// Minimum rate, in bytes per minute. A slower registry counts as silent, because it would hold its place for hours.
/// GPRS is a hundred times as fast.
const SLOWEST: u64 = 16 * 1024;
const MINUTE: Duration = Duration::from_secs(60);

/// Fetches a blob into `incoming` and checks it; returns the file, which the caller removes when it is used up. Waits for
/// another process that fetches the same. `tell` hears how many bytes are here.
///
/// # Errors
/// The registry does not have it or stopped answering (the received part stays for the next run), it is larger than
/// announced, or its digest is wrong (the part is deleted).
pub fn blob(
    repository: &mut Repository<'_>,
    blob: &Descriptor,
    incoming: &Incoming,
    limits: &Limits,
    tell: &dyn Fn(u64),
) -> Result<Claim, ImageError> {
    let what = || format!("size of blob {} of {}", blob.digest, repository.image());
    ImageError::bound(blob.size, limits.blob_bytes, what)?;
    let claim = incoming.claim_file(&format!("{BLOB}{}", hex(&blob.digest)));
    let claim = claim.map_err(incoming.error("cannot make a download in"))?;
    let path = claim.path.clone();
    let mut part = Part::open(path.clone(), blob.size).map_err(ImageError::io(&path, "cannot open"))?;
    let resumed = part.length > 0;
    part.pace = limits.bytes_per_second;
    part.fill(repository, blob, tell)?;
    let mut found = part.hasher.clone().finish();
    if found != blob.digest && resumed {
        // The beginning may come from a run whose writes a power cut damaged.
        part.restart().map_err(ImageError::io(&path, "cannot truncate"))?;
        part.fill(repository, blob, tell)?;
        found = part.hasher.clone().finish();
    }
    let right = ImageError::compare(found, &blob.digest, || format!("blob {} of {}", blob.digest, repository.image()));
    right.map(|()| claim).inspect_err(|_| drop(fs::remove_file(&path)))
}

/// A file that holds the first `length` bytes of a blob.
struct Part {
    file: File,
    path: PathBuf,
    length: u64,
    hasher: Hasher,
    /// Bytes per second.
    pace: Option<u64>,
    writeback: Writeback,
}

enum Failure {
    /// Worth another try.
    Link(ImageError),
    Final(ImageError),
}

impl Part {
    fn open(path: PathBuf, size: u64) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        if file.metadata()?.len() > size {
            file.set_len(0)?;
        }
        let mut reader = HashingReader::new(&file, u64::MAX);
        io::copy(&mut reader, &mut io::sink())?;
        let HashingReader { hasher, read: length, .. } = reader;
        Ok(Self { file, path, length, hasher, pace: None, writeback: Writeback::default() })
    }

    /// Bytes a minute that count as progress; half of what a configured pace would let through.
    fn slowest(&self) -> u64 {
        self.pace.map_or(SLOWEST, |pace| SLOWEST.min(pace.saturating_mul(30)))
    }

    fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.length = 0;
        self.hasher = Hasher::default();
        Ok(())
    }

    fn fill(
        &mut self,
        repository: &mut Repository<'_>,
        blob: &Descriptor,
        tell: &dyn Fn(u64),
    ) -> Result<(), ImageError> {
        let mut fruitless = 0;
        while self.length < blob.size {
            let before = self.length;
            match self.attempt(repository, blob, tell) {
                Ok(()) => {}
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Link(error)) => {
                    fruitless = if self.length >= before.saturating_add(self.slowest()) { 0 } else { fruitless + 1 };
                    if fruitless == FRUITLESS {
                        return Err(error);
                    }
                    log::warn!("{error}; has {} of {} bytes, trying again", self.length, blob.size);
                    std::thread::sleep(Duration::from_secs(1 << fruitless.saturating_sub(1)));
                }
            }
        }
        Ok(())
    }

    fn attempt(
        &mut self,
        repository: &mut Repository<'_>,
        blob: &Descriptor,
        tell: &dyn Fn(u64),
    ) -> Result<(), Failure> {
        let asked = repository.blob(&blob.digest, self.length);
        let response = asked.map_err(|error| match error {
            ImageError::Unavailable { .. } => Failure::Link(error),
            other => Failure::Final(other),
        })?;
        let goes_on = response.as_ref().is_some_and(|response| starts_at(response) == Some(self.length));
        if !goes_on {
            self.restart().map_err(|e| Failure::Final(ImageError::io(&self.path, "cannot truncate")(e)))?;
        }
        let Some(response) = response.filter(|response| goes_on || response.status() == StatusCode::OK) else {
            return Err(Failure::Link(repository.unreachable("it answered a range request with another range")));
        };
        let mut body = response.into_body().into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; 64 * 1024];
        let (began, from) = (Instant::now(), self.length);
        let mut meter = Meter { slowest: self.slowest(), since: began, bytes: 0 };
        loop {
            // The peer is slowed by what is not read.
            if let Some(pace) = self.pace {
                let due = Duration::from_millis((self.length - from).saturating_mul(1000) / pace.max(1));
                std::thread::sleep(due.saturating_sub(began.elapsed()));
            }
            let n = match body.read(&mut buffer) {
                Ok(0) if self.length < blob.size => {
                    return Err(Failure::Link(repository.unreachable("the connection ended inside a blob")));
                }
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(error) => return Err(Failure::Link(repository.unreachable(error))),
            };
            self.length += n as u64;
            if meter.is_stalled(Instant::now(), n as u64) {
                let why = format!("it sends less than {} bytes a minute", meter.slowest);
                return Err(Failure::Link(repository.unreachable(why)));
            }
            if self.length > blob.size {
                let _ = fs::remove_file(&self.path);
                let what = format!("content of blob {} of {}", blob.digest, repository.image());
                return Err(Failure::Final(ImageError::Limit { what, limit: blob.size }));
            }
            self.file
                .write_all(&buffer[..n])
                .map_err(|e| Failure::Final(ImageError::io(&self.path, "cannot write the download")(e)))?;
            self.writeback.wrote(&self.file, n);
            self.hasher.update(&buffer[..n]);
            tell(self.length);
        }
    }
}

/// Whether enough arrives.
struct Meter {
    /// Bytes a minute.
    slowest: u64,
    since: Instant,
    bytes: u64,
}

impl Meter {
    fn is_stalled(&mut self, now: Instant, bytes: u64) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        if now.saturating_duration_since(self.since) < MINUTE {
            return false;
        }
        let stalled = self.bytes < self.slowest;
        (self.since, self.bytes) = (now, 0);
        stalled
    }
}

/// Where the content of a response begins: 0, or what `Content-Range: bytes N-M/T` says.
fn starts_at(response: &Response<Body>) -> Option<u64> {
    if response.status() == StatusCode::OK {
        return Some(0);
    }
    let range = response.headers().get("content-range")?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_by_drop_is_silence() {
        let started = Instant::now();
        let at = |seconds| started + Duration::from_secs(seconds);
        let mut meter = Meter { slowest: 100, since: started, bytes: 0 };
        assert!(!meter.is_stalled(at(59), 1));
        assert!(!meter.is_stalled(at(60), 99), "a hundred in a minute");
        assert!(!meter.is_stalled(at(119), 98));
        assert!(meter.is_stalled(at(121), 1));
        assert!(!meter.is_stalled(at(150), 0), "and the next minute begins");
        assert!(meter.is_stalled(at(900), 99));
    }
}
