//! Events that help to find the cause of a failure.

/// Prints an event if `SAMPAN_SIM_TRACE` is set.
#[allow(clippy::print_stderr)]
pub(crate) fn trace(text: impl FnOnce() -> String) {
    static WANTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    if *WANTED.get_or_init(|| std::env::var_os("SAMPAN_SIM_TRACE").is_some()) {
        eprintln!("{}", text());
    }
}
