//! The directory operations that a store needs, abstracted so that a simulated disk can replace them.

use crate::Error;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open file. It stays readable after its name is removed.
pub trait DiskFile: Send + Sync {
    /// Reads at most `buffer.len()` bytes. A read may return fewer; 0 means the end of the file.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes`. Until the next [`sync`](DiskFile::sync) a power cut may keep any part of them.
    ///
    /// # Errors
    /// Fails when the disk refuses; any part may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Waits until content and length survive a power cut.
    ///
    /// # Errors
    /// Fails when the disk refuses. It is then unknown what survives, even if a later sync succeeds.
    fn sync(&self) -> io::Result<()>;

    /// Returns the size of the file in bytes.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    fn bytes(&self) -> io::Result<u64>;
}

/// A directory, with files by name.
pub trait Disk: Send + Sync {
    /// Returns the path for messages.
    fn path(&self) -> &Path;

    /// Opens a file that exists.
    ///
    /// # Errors
    /// Fails when the file does not exist, or the disk refuses.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates a file of `bytes` zeros and allocates space for them. An existing file of that name is emptied.
    ///
    /// # Errors
    /// Fails when there is no space, or the disk refuses; the file may exist in that case.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file, and replaces a file that already has the new name.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns the names of all files.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Waits until the creations, renames and removals of files survive a power cut.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    fn sync_names(&self) -> io::Result<()>;
}

/// Returns the error for an operation that the disk refused; `what` names the operation.
pub(crate) fn failed(disk: &dyn Disk, what: &str, error: io::Error) -> Error {
    let what = format!("{what} {}", disk.path().display());
    if is_full(&error) {
        return Error::Full;
    }
    if is_exhausted(&error) {
        Error::Exhausted { what, source: error }
    } else {
        Error::io(what)(error)
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns true if the system lacked a resource other than space, which may become free again.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let is_code = |code: i32| {
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN]
            .map(Errno::raw_os_error)
            .contains(&code)
    };
    error.raw_os_error().is_some_and(is_code)
}

/// Fills `buffer`, repeating short reads.
///
/// # Errors
/// `UnexpectedEof` when the file is too short.
pub(crate) fn read_exact(
    file: &dyn DiskFile,
    mut buffer: &mut [u8],
    mut offset: u64,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.read_at(buffer, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                buffer = &mut buffer[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}

/// Creates a directory that only its owner can enter, and its missing parent directories.
///
/// # Errors
/// Fails when the operating system refuses.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A directory of the operating system, locked against other processes while it is open.
///
/// The lock is on the directory itself, and also on the file `lock` in it, for earlier versions and for file systems
/// that lock only files. Removing the file does not let a second process in.
///
/// Names are resolved in the directory that was opened. Once that directory is removed, nothing is found or created in
/// it any more, even if another directory has its path.
pub(crate) struct Directory {
    path: PathBuf,
    folder: File,
    _lock: File,
}

impl Directory {
    /// Opens `path`, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`Error::InUse`], or the error of the operating system.
    pub fn open(path: &Path) -> Result<Directory, Error> {
        let failed = |what: &str| Error::io(format!("{what} {}", path.display()));
        if !path.exists() {
            create_private_directory(path).map_err(failed("create"))?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)
                    .and_then(|parent| parent.sync_all())
                    .map_err(failed("create"))?;
            }
        }
        let folder = File::open(path).map_err(failed("open"))?;
        if let Err(TryLockError::WouldBlock) = folder.try_lock() {
            return Err(Error::InUse { path: path.to_owned() });
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND;
        let lock = open_in(&folder, LOCK, flags).map_err(failed("lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Directory { path: path.to_owned(), folder, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Error::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(failed("lock")(source)),
        }
    }
}

fn open_in(folder: &File, name: &str, flags: OFlags) -> io::Result<File> {
    let mode = Mode::from_raw_mode(0o600);
    Ok(File::from(rustix::fs::openat(folder, name, flags | OFlags::CLOEXEC, mode)?))
}

const LOCK: &str = "lock";

impl Disk for Directory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(open_in(&self.folder, name, OFlags::RDWR)?))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = open_in(&self.folder, name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)?;
        if bytes > 0 {
            allocate(&file, bytes)?;
        }
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.folder, from, &self.folder, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if ![".", "..", LOCK].contains(&name.as_str()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.folder.sync_all()
    }
}

/// Reserves space where the file system supports it. Otherwise only the length is set, and a later write may run out of
/// space.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(bytes),
        other => Ok(other?),
    }
}

impl DiskFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stays_locked_when_its_lock_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let _open = Directory::open(&path).unwrap();
        std::fs::remove_file(path.join(LOCK)).unwrap();
        assert!(matches!(Directory::open(&path), Err(Error::InUse { .. })));
    }

    #[test]
    fn files_and_directories_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a").join("b");
        let disk = Directory::open(&path).unwrap();
        disk.create("file", 10).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path().join("a")), 0o700);
        assert_eq!(
            (mode(&path), mode(&path.join("file")), mode(&path.join(LOCK))),
            (0o700, 0o600, 0o600)
        );
    }

    #[test]
    fn operations_on_a_removed_directory_do_not_reach_its_replacement() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let removed = Directory::open(&path).unwrap();
        removed.create("a", 0).unwrap().write_at(b"old", 0).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        let disk = Directory::open(&path).unwrap();
        disk.create("a", 0).unwrap().write_at(b"new", 0).unwrap();

        let not_found = |done: io::Result<()>| done.unwrap_err().kind() == io::ErrorKind::NotFound;
        assert!(not_found(removed.create("b", 0).map(drop)));
        assert!(not_found(removed.open("a").map(drop)));
        assert!(not_found(removed.rename("a", "b")));
        assert!(not_found(removed.remove("a")));
        assert_eq!(removed.names().unwrap(), Vec::<String>::new());
        assert_eq!(disk.names().unwrap(), ["a"]);
        let mut found = [0; 3];
        read_exact(&*disk.open("a").unwrap(), &mut found, 0).unwrap();
        assert_eq!(&found, b"new");
    }
}
