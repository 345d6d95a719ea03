// Strict, with types: what the compiler lets through and a reader should not have to wonder about.
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['lib', 'built', 'node_modules', '*.mjs'] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      'eqeqeq': 'error',
      'no-console': ['error', { allow: ['error'] }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/unbound-method': 'off', // Lumino's signals take the method and its object: connect(this.f, this)
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }]
    }
  }
);
