package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcplane/kcp/cli/internal/apis"
)

// get returns the command that groups what can be shown of a workspace as a whole.
func (s *session) get(invocation string) *cobra.Command {
	var output format
	list := &cobra.Command{
		Use:     "apis",
		Aliases: []string{"api"},
		Short:   "List the APIs of a workspace and their providers",
		Long: `List the resources that a workspace serves and the provider of each: kcp itself (built in), a CustomResourceDefinition in the
workspace, or an APIBinding with its APIExport.`,
		Example: examples(invocation, `
			# List the APIs of the current workspace
			%[1]s apis

			# List the APIs of another workspace, with short names, scopes and schemas
			%[1]s apis -w :root:org:team -o wide`),
		Args:              atMost(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return s.listAPIs(cmd.Context(), output) },
	}
	output.addTo(list)
	return group("get", "Show the APIs of a workspace", "Show the APIs of a workspace and their providers.", examples(invocation, `
			# List the APIs of the current workspace and their providers
			%[1]s apis`), list)
}

func (s *session) listAPIs(ctx context.Context, output format) error {
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	config, err := s.restConfig(p)
	if err != nil {
		return err
	}
	provided, notes, err := apis.New(p.client).Provided(ctx, p.Location, config)
	for _, note := range notes {
		_, _ = fmt.Fprintf(s.ErrOut, "Note: %s\n", note)
	}
	if err != nil {
		return err
	}
	return s.printAPIs(output, provided)
}

func (s *session) printAPIs(output format, provided []apis.Provided) error {
	if output.structured() {
		return encode(s.Out, output, provided)
	}
	rows := [][]string{{"RESOURCE", "GROUP", "VERSIONS", "KIND", "PROVIDED BY"}}
	if output == asWide {
		rows = [][]string{{"RESOURCE", "SHORTNAMES", "GROUP", "VERSIONS", "KIND", "NAMESPACED", "SCHEMA", "PROVIDED BY"}}
	}
	for _, p := range provided {
		versions := strings.Join(p.Versions, ",")
		switch output {
		case asName:
			if _, err := fmt.Fprintln(s.Out, p.Name()); err != nil {
				return err
			}
		case asWide:
			rows = append(rows, []string{p.Resource, strings.Join(p.ShortNames, ","), p.Group, versions, p.Kind, fmt.Sprint(p.Namespaced),
				p.ProvidedBy.Schema, p.ProvidedBy.String()})
		default:
			rows = append(rows, []string{p.Resource, p.Group, versions, p.Kind, p.ProvidedBy.String()})
		}
	}
	if output == asName {
		return nil
	}
	return table(s.Out, rows...)
}
