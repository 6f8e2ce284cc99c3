//! Compile errors as users see them: one program for each kind of error. After a change that is
//! meant, `TRYBUILD=overwrite cargo test --test ui` writes the expected text anew.

use fuseline_core::diag::Code;
use std::path::Path;

#[test]
fn compile_errors() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

#[test]
fn every_kind_has_a_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let programs: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder of programs")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().replace('_', ""))
        .collect();
    for code in Code::ALL {
        let program = format!("{code:?}.rs").to_lowercase();
        assert!(programs.contains(&program), "no program for {code:?}");
    }
}
