//! The cloud-bridge command: arguments in, exit code out.

use std::io::Write;
use std::process::ExitCode;

use cloud_bridge::cli::{self, Arguments, ReaderGone};
use cloud_bridge::steps;

/// Steps of tasks between two looks at sockets and timers (tokio: 61), and until one has its turn that another thread
/// has woken (31): a step may take milliseconds, and a request needs several.
const STEPS: u32 = 8;
const STEPS_ASIDE: u32 = 2;

fn main() -> ExitCode {
    #[cfg(feature = "standalone")]
    if cloud_bridge::standalone::is_cel_helper() {
        return told(sampan_cel::helper::run().map(|()| ExitCode::SUCCESS).map_err(Into::into));
    }
    told(run(cli::arguments()))
}

fn told(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        // What a shell makes of SIGPIPE, which Rust ignores.
        Err(error) if error.is::<ReaderGone>() => ExitCode::from(128 + 13),
        Err(error) => {
            // Nothing is left to tell it to when stderr is gone.
            let _ = writeln!(std::io::stderr(), "cloud-bridge: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    cli::start_log(&arguments)?;
    apimachinery::panics::install();
    // One thread: a bridge waits nearly all the time, and idle threads cost memory.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.event_interval(STEPS).global_queue_interval(STEPS_ASIDE);
    let runtime = steps::watch(&mut builder).enable_all().build()?;
    let outcome = runtime.block_on(steps::main(cli::run(arguments)));
    // What still runs has nothing that the API does not hold: do not wait for it.
    runtime.shutdown_background();
    outcome
}
