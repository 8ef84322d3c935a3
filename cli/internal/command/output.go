package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// format is an output format. The empty format is for people.
type format string

const (
	asName format = "name"
	asJSON format = "json"
	asYAML format = "yaml"
	asWide format = "wide"
)

var formats = []string{string(asName), string(asJSON), string(asYAML), string(asWide)}

// choice is a flag with a fixed set of values.
type choice struct {
	*format
	from []string
}

// String returns the value.
func (c choice) String() string {
	if c.format == nil {
		return ""
	}
	return string(*c.format)
}

// Set refuses values outside of the set.
func (c choice) Set(value string) error {
	if !slices.Contains(c.from, value) {
		return fmt.Errorf("must be one of %s", strings.Join(c.from, ", "))
	}
	*c.format = format(value)
	return nil
}

// Type returns the name of the value in the help.
func (c choice) Type() string { return "format" }

func (f *format) addTo(cmd *cobra.Command) { f.addChoice(cmd, formats) }

func (f *format) addChoice(cmd *cobra.Command, from []string) {
	cmd.Flags().VarP(choice{f, from}, "output", "o", "Output format: one of "+strings.Join(from, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(from, cobra.ShellCompDirectiveNoFileComp))
}

// structured reports whether the result is for programs.
func (f *format) structured() bool { return *f == asJSON || *f == asYAML }

// encode writes a result as JSON or YAML.
func encode(w io.Writer, f format, result any) error {
	content, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	if f == asYAML {
		if content, err = yaml.JSONToYAML(content); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	}
	_, err = fmt.Fprintln(w, string(content))
	return err
}

// documents writes objects as YAML documents, or as JSON with more than one object in a List.
func documents[T any](w io.Writer, f format, objects []T) error {
	if f == asJSON {
		if len(objects) == 1 {
			return encode(w, f, objects[0])
		}
		return encode(w, f, map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	for i, object := range objects {
		if i > 0 {
			if _, err := fmt.Fprintln(w, "---"); err != nil {
				return err
			}
		}
		if err := encode(w, asYAML, object); err != nil {
			return err
		}
	}
	return nil
}

// table writes rows in columns. The first row is the header.
func table(w io.Writer, rows ...[]string) error {
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(columns, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return columns.Flush()
}
