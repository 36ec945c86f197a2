//! `larder`, also as `kubectl larder`. Everything is in `larder-cli`.

fn main() -> std::process::ExitCode {
    larder_cli::main()
}
