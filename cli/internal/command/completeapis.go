package command

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcplane/kcp/cli/internal/apis"
)

// complete offers the names that a function returns for the workspace that the flags select.
func (s *session) complete(cmd *cobra.Command, typed string, names func(context.Context, apis.Client, *place) ([]string, error),
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	p, err := s.inWorkspace(ctx)
	var found []string
	if err == nil {
		found, err = names(ctx, apis.New(p.client), p)
	}
	if err != nil {
		cobra.CompErrorln(err.Error())
	}
	return matching(found, typed), cobra.ShellCompDirectiveNoFileComp
}

// completeBindings completes the only argument of a command with names of bindings.
func (s *session) completeBindings(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return s.complete(cmd, typed, func(ctx context.Context, client apis.Client, p *place) ([]string, error) {
		bindings, err := client.Bindings(ctx, p.Location)
		return apis.Names(bindings), err
	})
}

// completeBindingArgument completes the arguments that bindingArgument parses.
func (s *session) completeBindingArgument(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return matching([]cobra.Completion{"apibinding"}, typed), cobra.ShellCompDirectiveNoFileComp
	}
	return s.completeBindings(cmd, args[1:], typed)
}

// completeClaims completes claims of the binding in the last argument.
func (s *session) completeClaims(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return s.complete(cmd, typed, func(ctx context.Context, client apis.Client, p *place) ([]string, error) {
		if len(args) == 0 {
			return nil, nil
		}
		binding, err := client.Binding(ctx, p.Location, args[len(args)-1])
		if err != nil {
			return nil, err
		}
		return apis.ClaimNames(binding.Status.ExportPermissionClaims), nil
	})
}

// completeExportedClaims completes claims of the export in the argument.
func (s *session) completeExportedClaims(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return s.complete(cmd, typed, func(ctx context.Context, client apis.Client, p *place) ([]string, error) {
		if len(args) == 0 {
			return nil, nil
		}
		path, name, err := apis.ParseExport(args[0])
		if err != nil {
			return nil, err
		}
		export, err := client.Export(ctx, binding{path: path}.at(p.Location), name)
		if err != nil {
			return nil, err
		}
		return apis.ClaimNames(export.Spec.PermissionClaims), nil
	})
}

// completeExports completes an export, one segment of its path at a time.
func (s *session) completeExports(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	above := typed[:strings.LastIndex(typed, ":")+1]
	found, _ := s.complete(cmd, typed, func(ctx context.Context, client apis.Client, p *place) ([]string, error) {
		names, at := []string{"root:"}, p.Location
		if above != "" {
			at, names = p.At(strings.Trim(above, ":")), nil
			children, _, err := p.client.Children(ctx, at, completionLimit)
			if err != nil {
				return nil, err
			}
			for _, ws := range children {
				names = append(names, above+ws.Name+":")
			}
		}
		exports, err := client.Exports(ctx, at)
		for _, export := range exports {
			names = append(names, above+export.Name)
		}
		return names, err
	})
	return found, directive
}
