//! Flags of verbs.

use super::*;

const EXEC: Verb = Verb {
    name: "exec",
    about: "a command",
    operands: Operands::Command("POD"),
    flags: &[CONTAINER, Flag::switch("stdin", "").short('i'), Flag::switch("tty", "a terminal").short('t')],
    run: |_| Ok(()),
};

#[test]
fn flags_of_the_command_are_its_own() {
    let words = ["kube-system/p", "-c", "c", "-it", "--", "ls", "-l", "--", "x"];
    let given = EXEC.parse(lexopt::Parser::from_args(words)).unwrap();
    assert!(given.has("stdin") && given.has("tty") && given.values("container").eq(["c"]));
    assert_eq!(given.operands, ["kube-system/p", "ls", "-l", "--", "x"]);
    for (words, missing) in [(&["p"][..], "a command is missing"), (&["-i"], "POD is missing")] {
        let Err(CliError::Usage(refused)) = EXEC.parse(lexopt::Parser::from_args(words)) else { panic!("taken") };
        assert!(refused.contains(missing), "{refused}");
    }
}
