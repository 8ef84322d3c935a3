package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// format is how a result is printed: for people if it is empty.
type format string

const (
	asName format = "name"
	asJSON format = "json"
	asYAML format = "yaml"
	asWide format = "wide"
)

var formats = []string{string(asName), string(asJSON), string(asYAML), string(asWide)}

// String, Set and Type make a format a flag.
func (f *format) String() string { return string(*f) }

// Set refuses what is no format.
func (f *format) Set(value string) error {
	for _, known := range formats {
		if value == known {
			*f = format(value)
			return nil
		}
	}
	return fmt.Errorf("want one of %s", strings.Join(formats, ", "))
}

// Type is what the help calls the value.
func (f *format) Type() string { return "format" }

func (f *format) addTo(cmd *cobra.Command) {
	cmd.Flags().VarP(f, "output", "o", "What to print: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// structured tells whether the result is for programs.
func (f *format) structured() bool { return *f == asJSON || *f == asYAML }

// encode writes a result for programs.
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

// table writes rows in columns, the first of them being the titles.
func table(w io.Writer, rows ...[]string) error {
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(columns, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return columns.Flush()
}
