//! `edge-runtime pull` and `import`: the daemon's program fetches, this one has the help and prints the result in other forms.

use std::process::{ExitStatus, Stdio};

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use serde_json::{Value, json};

use crate::output::{Form, JSON, OUTPUT};
use crate::worker;

const QUIET: Flag = Flag::switch("quiet", "show no progress").short('q');

pub(super) const PULL: Verb = Verb {
    name: "pull",
    about: "Pull an image from its registry",
    operands: Operands::One("IMAGE"),
    flags: &[Flag::value("auth", "FILE", "docker config with logins, or - for standard input"), QUIET, OUTPUT, JSON],
    run: |given| fetch(&given, "pull", &["auth", QUIET.long]),
};

pub(super) const IMPORT: Verb = Verb {
    name: "import",
    about: "Import an OCI layout or docker archive (- reads standard input)",
    operands: Operands::One("FILE"),
    flags: &[Flag::value("reference", "NAME", "name of the image, instead of its own"), QUIET, OUTPUT, JSON],
    run: |given| fetch(&given, "import", &["reference", QUIET.long]),
};

fn fetch(given: &Given, verb: &str, flags: &[&str]) -> Result<(), CliError> {
    let form = Form::of(given)?;
    // An empty folder would make a flag of the next word.
    given.paths()?;
    let mut command = worker::command(verb, &[], given, flags);
    if matches!(form, Form::Table | Form::Wide) {
        return Err(worker::become_it(command));
    }
    let done = command.stdin(Stdio::inherit()).stderr(Stdio::inherit()).output();
    let done = done.map_err(|error| CliError::Failed(format!("{}: {error}", command.get_program().display())))?;
    if !done.status.success() {
        return Err(failed(verb, done.status));
    }
    let images = images(&String::from_utf8_lossy(&done.stdout));
    let names = || images.iter().filter_map(|one| one["image"].as_str().map(str::to_owned)).collect();
    form.print(&images, |_| String::new(), names)
}

/// A program that exits has said why. A killed one says nothing: a pull is the first to go if memory is short.
fn failed(verb: &str, status: ExitStatus) -> CliError {
    match status.code() {
        Some(code) => CliError::Exit(u8::try_from(code).unwrap_or(1)),
        None => {
            CliError::Failed(format!("{verb} was killed ({status}), perhaps because memory was short; run it again"))
        }
    }
}

/// Lines of `NAME ID`.
fn images(lines: &str) -> Vec<Value> {
    let pairs = lines.lines().filter_map(|line| line.rsplit_once(' '));
    pairs.map(|(image, id)| json!({"image": image, "id": id})).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn killed_program_does_not_fail_silently() {
        // As wait(2) encodes them: SIGKILL, and exit code 3.
        assert!(
            matches!(failed("pull", ExitStatus::from_raw(9)), CliError::Failed(why) if why.contains("pull was killed"))
        );
        assert!(matches!(failed("pull", ExitStatus::from_raw(3 << 8)), CliError::Exit(3)));
    }

    #[test]
    fn each_line_is_an_image() {
        let found = images("docker.io/library/a:1 sha256:1\nsha256:2 sha256:2\n");
        let wanted = [
            json!({"image": "docker.io/library/a:1", "id": "sha256:1"}),
            json!({"image": "sha256:2", "id": "sha256:2"}),
        ];
        assert_eq!(found, wanted);
    }
}
