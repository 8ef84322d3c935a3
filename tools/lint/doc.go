// Package lint has no code: its module pins the version of golangci-lint, and keeps its requirements out of the other modules.
package lint
