//! Signals as images and manifests write them: names, numbers, and real-time signals (`SIGRTMIN+3` is how systemd in a
//! container wants to be stopped). Pure.

/// By number, from 1. Some architectures number them otherwise (MIPS, SPARC); no build of this node runs there.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// Range of Linux's C libraries; they use the kernel's first ones themselves.
const RT_MIN: i32 = 34;
const RT_MAX: i32 = 64;

/// The number that `text` means: `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`, `RTMAX-1`.
pub fn number(text: &str) -> Option<i32> {
    let text = text.trim();
    if let Ok(number) = text.parse::<i32>() {
        return (1..=RT_MAX).contains(&number).then_some(number);
    }
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let from = |base: &str, sign: char, start: i32, step: i32| {
        let rest = name.strip_prefix(base)?;
        let by = if rest.is_empty() { 0 } else { rest.strip_prefix(sign)?.parse::<u8>().ok()?.into() };
        Some(start + step * by).filter(|number| (RT_MIN..=RT_MAX).contains(number))
    };
    from("RTMIN", '+', RT_MIN, 1)
        .or_else(|| from("RTMAX", '-', RT_MAX, -1))
        .or_else(|| (1..).zip(NAMES).find(|(_, known)| *known == name).map(|(number, _)| number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, wanted) in [
            ("SIGQUIT", 3),
            ("QUIT", 3),
            ("3", 3),
            ("SIGRTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
            ("64", 64),
            ("SIGTERM", 15),
            ("CHLD", 17),
            ("SIGSYS", 31),
            (" 15 ", 15),
        ] {
            assert_eq!(number(text), Some(wanted), "{text}");
        }
        for none in ["", "0", "65", "-1", "SIG", "SIGNONE", "RTMIN+31", "RTMIN-1", "RTMAX+1", "SIGRTMIN+"] {
            assert_eq!(number(none), None, "{none}");
        }
    }
}
