//! Arguments of `vcuda apply`.

use std::path::PathBuf;

use clap::Args;

pub(super) const APPLY_EXAMPLES: &str = "\
Examples:
  vcuda apply -f grants.yaml --dry-run     what would change
  vcuda apply -f grants.yaml
  vcuda apply -f grants.yaml --prune       and release what is not in the file
  generate | vcuda apply -f -              from stdin";

pub(super) const APPLY_DETAILS: &str = "\
The file lists grants by name, with the options of `vcuda grant create`:

  grants:
    - name: web
      memory: 4GiB
      cores: 30
      policy: burst
      cores-max: 60
    - name: train
      memory: 16GiB
      gpus: 2
      priority: low
      suspendable: true
      wait-for-memory: 30s

A field that is left out has its default. `gpu` names GPUs by UUID, in place of
`gpus`; `user` is as --user. What is not in the file is left alone, or with
--prune released; pods' grants always are left alone. If anything in the file is
wrong, nothing is applied. The node's manager decides as each change is made:
one that it refuses, such as the release of a grant in use, ends it.";

#[derive(Args, Debug)]
pub(crate) struct ApplyArgs {
    /// File with the grants, or - for stdin
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Release grants that are not in the file, but those of pods
    #[arg(long)]
    pub(crate) prune: bool,
}
