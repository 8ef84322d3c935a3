// Package lint has no code: its module pins the version of golangci-lint, whose requirements stay out of the other modules.
package lint
