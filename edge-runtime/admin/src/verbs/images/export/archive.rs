//! Writes an OCI image layout (image-spec, `image-layout.md`) into one tar. A blob is named after its digest, so its header is
//! written when it is complete.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use edge_runtime::image::digest::{Hasher, hex};
use tar::{EntryType, Header};

const BLOCK: usize = 512;

/// A blob of the archive, as descriptors name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) digest: String,
    pub(super) size: u64,
}

pub(super) struct Archive {
    file: File,
}

impl Archive {
    /// # Errors
    /// The file cannot be written; of the other methods, too.
    pub(super) fn begin(file: File) -> io::Result<Self> {
        let archive = Self { file };
        archive.named("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok(archive)
    }

    /// Adds the blob that `write` writes.
    pub(super) fn blob(&self, write: impl FnOnce(&mut Hashed<'_>) -> io::Result<()>) -> io::Result<Blob> {
        let mut file = &self.file;
        let start = file.stream_position()?;
        file.write_all(&[0; BLOCK])?;
        let mut out = Hashed { out: BufWriter::with_capacity(64 << 10, file), hasher: Hasher::default(), size: 0 };
        write(&mut out)?;
        out.flush()?;
        let blob = Blob { digest: out.hasher.finish(), size: out.size };
        self.pad(blob.size)?;
        file.seek(SeekFrom::Start(start))?;
        file.write_all(header(&format!("blobs/sha256/{}", hex(&blob.digest)), blob.size)?.as_bytes())?;
        file.seek(SeekFrom::End(0))?;
        Ok(blob)
    }

    /// Adds the list of its images; the archive is on the medium when this returns.
    pub(super) fn finish(self, index: &[u8]) -> io::Result<()> {
        self.named("index.json", index)?;
        (&self.file).write_all(&[0; 2 * BLOCK])?;
        self.file.sync_all()
    }

    fn named(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let (mut file, size) = (&self.file, bytes.len() as u64);
        file.write_all(header(path, size)?.as_bytes())?;
        file.write_all(bytes)?;
        self.pad(size)
    }

    /// Fills the last block of content of this size.
    fn pad(&self, size: u64) -> io::Result<()> {
        let used = usize::try_from(size % BLOCK as u64).unwrap_or_default();
        (&self.file).write_all(&[0; BLOCK][..(BLOCK - used) % BLOCK])
    }
}

/// Passes bytes on, counts and hashes them.
pub(super) struct Hashed<'a> {
    out: BufWriter<&'a File>,
    hasher: Hasher,
    size: u64,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn header(path: &str, size: u64) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    header.set_path(path)?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    Ok(header)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use edge_runtime::image::digest::sha256;

    use super::*;

    #[test]
    fn blobs_have_the_names_of_their_digests() {
        let mut file = tempfile::tempfile().unwrap();
        let archive = Archive::begin(file.try_clone().unwrap()).unwrap();
        let sizes = [0_usize, 1, 512, 100_000];
        for size in sizes {
            let bytes = vec![7_u8; size];
            let blob = archive.blob(|out| out.write_all(&bytes)).unwrap();
            assert_eq!(blob, Blob { digest: sha256(&bytes), size: size as u64 });
        }
        archive.finish(b"{}").unwrap();
        file.rewind().unwrap();
        let mut found = Vec::new();
        for entry in tar::Archive::new(&file).entries().unwrap() {
            let mut entry = entry.unwrap();
            let (name, mut bytes) = (entry.path().unwrap().display().to_string(), Vec::new());
            entry.read_to_end(&mut bytes).unwrap();
            found.push((name, bytes.len()));
        }
        let blob = |size: usize| (format!("blobs/sha256/{}", hex(&sha256(&vec![7_u8; size]))), size);
        let mut wanted = vec![("oci-layout".to_owned(), 30)];
        wanted.extend(sizes.map(blob));
        wanted.push(("index.json".to_owned(), 2));
        assert_eq!(found, wanted);
    }
}
