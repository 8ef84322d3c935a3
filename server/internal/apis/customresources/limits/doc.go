// Package limits bounds what a definition makes the server compute. A definition is checked when it is written, and what
// is stored already is not executed beyond the limits. The values of objects are weighed against the schema before they
// are validated.
package limits
