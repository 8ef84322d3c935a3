package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/cli/internal/apis"
)

// claims returns the command that groups everything about permission claims.
func (s *session) claims(invocation string) *cobra.Command {
	get := group(
		"get",
		"Show permission claims",
		"Show the permission claims of APIBindings and whether they are accepted.",
		examples(invocation+" get", `
			# Show all claims in the current workspace
			%[1]s apibinding`),
		s.claimsGet(invocation+" get"),
	)
	return group("claims", "Show, accept and reject permission claims",
		`Show, accept and reject permission claims. With a permission claim, the provider of a bound API requests access to other resources
in the workspace. The provider gets access only to claims that are accepted.`,
		examples(invocation, `
			# Show all claims in the current workspace
			%[1]s get apibinding

			# Accept all claims of an APIBinding
			%[1]s accept apibinding widgets

			# Reject one claim
			%[1]s reject apibinding widgets --resource secrets.core`),
		get, s.claimsSetState(invocation, "accept", apis.Accepted), s.claimsSetState(invocation, "reject", apis.Rejected),
		s.claimsUpdate(invocation))
}

func (s *session) claimsGet(invocation string) *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:     "apibinding [NAME]",
		Aliases: []string{"apibindings"},
		Short:   "Show the permission claims of one or all APIBindings",
		Long: `Show the permission claims of one or all APIBindings. STATE is
  Accepted     the provider has access with the verbs that are both claimed and accepted
  Rejected     the provider has no access
  Open         the provider has no access, because the claim is neither accepted nor rejected
  NotClaimed   the APIBinding accepts or rejects a claim that its APIExport does not make, or no longer makes`,
		Example: examples(invocation, `
			# Show the claims of all APIBindings in the current workspace
			%[1]s apibinding

			# Show the claims of one APIBinding, with the objects they select
			%[1]s apibinding widgets -o wide`),
		Args:              atMost(1, "at most one name"),
		ValidArgsFunction: s.completeBindings,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.printClaims(cmd.Context(), strings.Join(args, ""), output)
		},
	}
	output.addChoice(cmd, []string{string(asJSON), string(asYAML), string(asWide)})
	return cmd
}

func (s *session) printClaims(ctx context.Context, name string, output format) error {
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	client := apis.New(p.client)
	var bindings []apisv1alpha2.APIBinding
	if name == "" {
		bindings, err = client.Bindings(ctx, p.Location)
	} else {
		var binding *apisv1alpha2.APIBinding
		if binding, err = client.Binding(ctx, p.Location, name); err == nil {
			bindings = append(bindings, *binding)
		}
	}
	if err != nil {
		return err
	}
	claims := []apis.Claim{}
	for i := range bindings {
		claims = append(claims, apis.ClaimsOf(&bindings[i])...)
	}
	switch {
	case output.structured():
		return encode(s.Out, output, claims)
	case len(claims) == 0:
		_, err := fmt.Fprintf(s.ErrOut, "No claims found in %s.\n", p)
		return err
	}
	rows := [][]string{{"APIBINDING", "CLAIM", "VERBS", "STATE"}}
	if output == asWide {
		rows[0] = append(rows[0], "OBJECTS", "IDENTITY HASH")
	}
	for _, claim := range claims {
		state := string(claim.State)
		if claim.Differs() {
			state += " for " + strings.Join(claim.AnsweredVerbs, ",")
		}
		row := []string{claim.Binding, claim.Name(), strings.Join(claim.Verbs, ","), state}
		if output == asWide {
			row = append(row, objectsOf(claim), claim.IdentityHash)
		}
		rows = append(rows, row)
	}
	return table(s.Out, rows...)
}

// objectsOf describes the objects that an accepted or rejected claim selects.
func objectsOf(claim apis.Claim) string {
	switch {
	case claim.Selector == nil:
		return ""
	case claim.Selector.MatchAll:
		return "all"
	}
	return metav1.FormatLabelSelector(&claim.Selector.LabelSelector)
}

// bindingArgument parses "apibinding NAME" or "NAME".
func bindingArgument(name *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 2 && strings.HasPrefix("apibindings", args[0]) && strings.HasPrefix(args[0], "apibinding") {
			args = args[1:]
		}
		if len(args) != 1 {
			return fmt.Errorf("%s requires the name of one APIBinding; see %s --help", cmd.CommandPath(), cmd.CommandPath())
		}
		*name = args[0]
		return nil
	}
}

// claimsSetState returns the command that accepts or rejects claims.
func (s *session) claimsSetState(invocation, verb string, state apis.State) *cobra.Command {
	var name, identityHash string
	var resources []string
	title := strings.ToUpper(verb[:1]) + verb[1:]
	cmd := &cobra.Command{
		Use:   verb + " apibinding NAME",
		Short: title + " permission claims of an APIBinding",
		Long: title + ` all permission claims of an APIBinding, or only those that the flags select. Other claims stay unchanged. The command
covers the verbs that are claimed at this moment.`,
		Example: examples(invocation+" "+verb, `
			`+title+` all claims
			%[1]s apibinding widgets

			`+title+` two claims
			%[1]s apibinding widgets --resource configmaps.core --resource roles.rbac.authorization.k8s.io`),
		Args:              bindingArgument(&name),
		ValidArgsFunction: s.completeBindingArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.changeClaims(cmd.Context(), name, func(binding *apisv1alpha2.APIBinding) ([]string, error) {
				claims, err := apis.Select(binding.Status.ExportPermissionClaims, resources, identityHash)
				var changed []string
				for _, claim := range claims {
					if apis.SetState(binding, claim, state) {
						changed = append(changed, fmt.Sprintf("%s %s (%s)", state, apis.ClaimName(claim), strings.Join(claim.Verbs, ", ")))
					}
				}
				return changed, err
			})
		},
	}
	cmd.Flags().StringArrayVar(&resources, "resource", nil, "Select the claim on RESOURCE.GROUP, such as configmaps.core; can be repeated")
	cmd.Flags().StringVar(&identityHash, "identity-hash", "", "Select claims with this identity hash")
	_ = cmd.RegisterFlagCompletionFunc("resource", s.completeClaims)
	return cmd
}

// claimsUpdate returns the command that updates accepted and rejected claims to what is claimed now.
func (s *session) claimsUpdate(invocation string) *cobra.Command {
	var name string
	return &cobra.Command{
		Use:   "update apibinding NAME",
		Short: "Update accepted and rejected permission claims after a change of the APIExport",
		Long: `Update the permission claims of an APIBinding to what its APIExport claims now. Accepted claims stay accepted and rejected claims
stay rejected, with the verbs that are claimed now. Claims that the APIExport no longer makes are removed. Open claims stay open.`,
		Example: examples(invocation+" update", `
			# Update the claims after the APIExport has claimed another verb
			%[1]s apibinding widgets`),
		Args:              bindingArgument(&name),
		ValidArgsFunction: s.completeBindingArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.changeClaims(cmd.Context(), name, func(binding *apisv1alpha2.APIBinding) ([]string, error) {
				var changed []string
				for _, claim := range apis.UpdateClaims(binding) {
					if claim.State == apis.NotClaimed {
						changed = append(changed, fmt.Sprintf("Removed %s, which is no longer claimed", claim.Name()))
						continue
					}
					changed = append(changed, fmt.Sprintf("%s %s (%s)", claim.State, claim.Name(), strings.Join(claim.Verbs, ", ")))
				}
				return changed, nil
			})
		},
	}
}

// changeClaims changes the accepted and rejected claims of an APIBinding, and prints the changes.
func (s *session) changeClaims(ctx context.Context, name string, change func(*apisv1alpha2.APIBinding) ([]string, error)) error {
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	var changed []string
	err = apis.New(p.client).Change(ctx, p.Location, name, func(binding *apisv1alpha2.APIBinding) (bool, error) {
		if binding.Status.APIExportClusterName == "" {
			return false, fmt.Errorf("the claims of the APIExport are not known yet: %s", apis.Describe(binding))
		}
		var err error
		changed, err = change(binding)
		return len(changed) > 0, err
	})
	if err != nil {
		return err
	}
	if len(changed) == 0 {
		changed = []string{fmt.Sprintf("APIBinding %q is up to date, nothing changed", name)}
	}
	_, err = fmt.Fprintln(s.Out, strings.Join(changed, "\n"))
	return err
}
