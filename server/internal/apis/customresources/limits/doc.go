// Package limits limits the work that a definition causes in the server. A definition is checked when it is written; the
// parts of stored definitions that exceed the limits are not executed. The cost of validating an object is estimated
// before it is validated.
package limits
