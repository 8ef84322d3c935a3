package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcplane/kcp/cli/internal/location"
	"github.com/kcplane/kcp/cli/internal/workspaces"
)

// Completions must be fast, and long lists do not help.
const (
	completionTime  = 3 * time.Second
	completionLimit = 10 * workspaces.Page
)

// completeWorkspaces completes the only argument of a command with workspaces.
func (s *session) completeWorkspaces(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return s.completePaths(cmd, args, typed)
}

// completePaths completes the path of a workspace, one name at a time.
func (s *session) completePaths(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	if typed == "~" || typed == ".." {
		typed += ":"
	}
	above, name := "", typed
	if i := strings.LastIndexAny(typed, ":/"); i >= 0 {
		above, name = typed[:i+1], typed[i+1:]
	}
	if above == ":" || above == "/" {
		return matching([]cobra.Completion{above + location.Root}, typed), directive
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	children, err := s.childrenOf(ctx, above)
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, directive
	}
	var found []cobra.Completion
	for _, child := range children {
		if strings.HasPrefix(child.name, name) {
			found = append(found, cobra.CompletionWithDesc(above+child.name, child.about))
		}
	}
	return found, directive
}

// child is a workspace in a list of completions, with its description.
type child struct{ name, about string }

// childrenOf returns the child workspaces of a location as typed by the user.
func (s *session) childrenOf(ctx context.Context, typed string) ([]child, error) {
	p, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	at := p.Location
	if typed != "" {
		if at, err = s.resolve(ctx, p, typed); err != nil {
			return nil, err
		}
	}
	if !at.IsWorkspace() {
		return nil, nil
	}
	list, _, err := p.client.Children(ctx, at, completionLimit)
	var children []child
	for _, ws := range list {
		c := child{name: ws.Name}
		if ws.Spec.Type != nil {
			c.about = ws.Spec.Type.String()
		}
		children = append(children, c)
	}
	return children, err
}

// completeTypes offers the workspace types of the current workspace and its ancestors, where the server looks them up.
func (s *session) completeTypes(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	p, err := s.inWorkspace(ctx)
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	at, err := p.client.Canonical(ctx, p.Location)
	if err != nil {
		at = p.Location
	}
	var found []cobra.Completion
	for ok := true; ok; at, ok = at.Parent() {
		names, err := p.client.Types(ctx, at)
		if err != nil {
			continue // types that cannot be read cannot be used either
		}
		for _, name := range names {
			found = append(found, at.Cluster()+":"+name)
		}
	}
	return matching(found, typed), cobra.ShellCompDirectiveNoFileComp
}

func (s *session) completeContexts(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	config, err := s.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for name := range config.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return matching(names, typed), cobra.ShellCompDirectiveNoFileComp
}

func matching(all []cobra.Completion, typed string) []cobra.Completion {
	return slices.DeleteFunc(all, func(c cobra.Completion) bool { return !strings.HasPrefix(c, typed) })
}
